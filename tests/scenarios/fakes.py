"""Systems beside the worker, in memory: cluster, registry, git, Slack, and MLflow, for sweeps in memory."""

import asyncio

from bot.core.curves import MAX_FAILURES, LiveReading
from bot.core.errors import UserError
from bot.platform.registry.client import ImageMissingError
from bot.platform.repos.git import Tip
from bot.platform.slack.client import NotInChannelError
from bot.sweep.charts.drawing import Picture
from bot.sweep.results.run_writer import Completion, MainRun, MlflowUnavailableError
from bot.sweep.results.tracking_api import TrackingError
from k8s.api.errors import ApiError
from local.kubernetes.apiserver import scale
from local.kubernetes.apiserver import store as kubernetes
from local.kubernetes.apiserver.kinds import Refused
from local.kubernetes.apiserver.selectors import matcher
from local.kueue.status import pending
from tests.bot.factories import COMMIT

COMMITS = {"wider": COMMIT[::-1]}  # of other branches
DIGEST = f"sha256:{'d' * 64}"


class DirectCluster:
    """The product's client without the wire: the same store behind, the same errors."""

    def __init__(self, store: kubernetes.Store) -> None:
        self.store = store

    async def get(self, ref):
        return self.store.get(ref.kind, ref.namespace, ref.name)

    async def list(self, kind, namespace, *, labels="", fields="", only=None):
        if kind not in {known.name for known in self.store.kinds()}:
            raise ApiError(404, "", f"this cluster does not know {kind}: is it installed?")
        matches = matcher(kind, namespace or None, {"labelSelector": labels, "fieldSelector": fields})
        found = filter(matches, self.store.peek(kind, namespace or None))
        return [obj for obj in found if only is None or only(obj)]  # the store's own, as `watch` yields them

    async def read(self, path):
        *_, namespace, _, queue, _ = path.split("/")  # of Kueue's visibility API, the only one that is read
        try:
            return pending(self.store, namespace, queue)
        except Refused:
            raise ApiError(404, "", "no visibility API") from None

    async def pages(self, kind, namespace, *, labels="", limit=0):
        yield await self.list(kind, namespace, labels=labels), str(self.store.version)

    async def watch(self, kind, namespace, *, labels, since, on_open, **_):
        changes = self.store.follow(int(since))
        wanted = dict([labels.split("=", 1)]) if labels else {}
        try:
            on_open()
            while True:
                change = await changes.get()
                meta = change.object["metadata"]
                if change.object["kind"] != kind or namespace not in ("", meta.get("namespace")):
                    continue
                selected = wanted.items() <= meta.get("labels", {}).items()
                yield change.type if selected else "DELETED", change.object  # as for one that lost its labels
        finally:
            self.store.unfollow(changes)

    async def is_ready(self):
        return True

    async def create(self, manifest):
        return self._refusable(self.store.create, manifest)

    async def merge(self, ref, patch, *, subresource=""):
        where = (ref.kind, ref.namespace, ref.name)
        if subresource == "scale":
            return self._refusable(scale.patch, self.store, *where, patch)
        return self._refusable(self.store.patch, *where, patch, subresource=subresource or None)

    async def delete(self, ref, *, uid=None, wait=False):
        policy = "Foreground" if wait else "Background"
        try:
            where = (ref.kind, ref.namespace, ref.name)
            self._refusable(self.store.delete, *where, uid=uid, propagation=policy)
        except ApiError as error:
            if error.status == 404 or error.stale:
                return False
            raise
        return True

    async def log(self, namespace, pod, container, *, tail, previous=False, since=""):
        return f"the last lines of {container}" if self.store.find("Pod", namespace, pod) else ""

    def _refusable(self, call, *args, **kwargs):
        try:
            return call(*args, **kwargs)
        except Refused as refused:
            refusal = refused.body if isinstance(refused.body, dict) else {}
            raise ApiError(refused.code, refusal.get("reason", ""), refusal.get("message", "")) from None


class FakeRegistry:
    """`images`: digests by repository:tag, as the last push has left them; `pushed`: repository@digest."""

    def __init__(self):
        self.images, self.pushed, self.composed = {}, set(), []

    def push(self, image, digest):
        self.images[image] = digest
        self.pushed.add(f"{image.partition(':')[0]}@{digest}")

    async def digest(self, repository, reference):
        if ":" in reference:
            return reference if f"{repository}@{reference}" in self.pushed else None
        return self.images.get(f"{repository}:{reference}")

    async def compose(self, to, below, above):
        for place in (below, above):
            if not await self.digest(place.repository, place.tag):
                raise ImageMissingError(f"{place} is gone")
        self.composed.append((below.tag, above.tag))
        self.push(str(to), DIGEST)
        return DIGEST


class FakeGit:
    def __init__(self, space, files):
        self.space, self.files = space, files

    async def resolve(self, url, branch):
        if "," in branch:
            raise UserError(f"branch={branch} doesn't exist in {url}.")
        return Tip(f"refs/heads/{branch}", COMMITS.get(branch, COMMIT))

    async def prefetch(self, url, commit, paths):
        pass

    async def read(self, url, commit, path, most=0):
        return self.space if path == "sweeps/lr.yaml" else self.files.get(path)

    async def names(self, url, commit, folder):
        return ["lr.yaml"] if folder else list(self.files)

    async def subject(self, url, commit):
        return "Try a wider net"


class FakeSlack:
    def __init__(self, *, invited=True):
        self.invited, self.posted, self.ephemeral_messages, self.parents = invited, [], [], []
        self.opened, self.shown = 0, {}  # the current version of each message, by ts
        self.loud, self.files, self.views = [], [], {}  # what the whole channel sees; by name; by id

    async def open_thread(self, channel, message):
        if not self.invited:
            raise NotInChannelError(channel)
        self.opened += 1
        self.parents.append(message)
        return f"{len(self.parents)}.0"

    async def reply(self, channel, thread, message, *, broadcast=False):
        text = message if isinstance(message, str) else message.text
        self.posted.append(text)
        self.loud += [text] if broadcast else []
        ts = f"posted.{len(self.posted)}"
        self.shown[ts] = message
        return ts

    async def upload_files(self, channel, thread, text, files, *, at_once=False):
        self.posted.append(text)
        self.files += [(file.name, file.content) for file in files]

    async def send_file(self, user, text, file):
        self.files.append((file.name, file.content))

    async def update_view(self, view, content):
        self.views[view] = content

    async def update(self, channel, ts, message):
        self.shown[ts] = message
        where, _, number = ts.partition(".")
        if where == "posted":
            self.posted[int(number) - 1] = message.text
        else:
            self.parents.append(message)

    async def until_room_for_edits(self):
        return 0.0

    async def permalink(self, channel, ts):
        return f"https://lab.slack.com/{channel}/{ts}"

    async def post_ephemeral(self, user, message, response_url="", channel="", thread=""):
        self.ephemeral_messages.append((user, message if isinstance(message, str) else message.text))

    async def notify(self, user, message):
        await self.post_ephemeral(user, message)


class FakeMessages:
    """Messages by ts, each with all its versions."""

    def __init__(self):
        self.messages, self.answers, self.views, self.replies = {}, [], {}, []
        self.invited = True
        self.reply_error = self.update_error = self.answer_error = None

    async def reply(self, channel, thread, message):
        if self.reply_error:
            raise self.reply_error
        self.replies.append(message)
        return "9.9"

    async def post(self, channel, message):
        if not self.invited:
            raise NotInChannelError(channel)
        ts = f"{len(self.messages) + 1}.0"
        self.messages[ts] = [message]
        return ts

    async def update(self, channel, ts, message):
        if self.update_error:
            raise self.update_error
        if ts in self.messages:
            self.messages[ts].append(message)
        return ts not in self.messages

    async def post_ephemeral(self, user, message, response_url=""):
        if self.answer_error:
            raise self.answer_error
        self.answers.append((user, message))

    async def update_view(self, view, content):
        self.views[view] = content

    def texts(self):
        """Return what each message says last."""
        return [each[-1].text for each in self.messages.values()]


class FakeResults:
    async def open(self, sweep):
        return "http://mlflow/#/experiments/1"

    async def ready(self, sweep):
        pass


class FakeLive:
    """MLflow as a sweep sees it: `reported`; `away` while it doesn't answer."""

    def __init__(self):
        self.reported, self.away, self.reads = {}, False, 0

    async def read(self, sweep_id, plan, wanted, query=None):
        self.reads += 1
        if self.away:
            return LiveReading(failures=MAX_FAILURES)
        known = self.reported
        latest = {trial: curve[-1] for trial, curve in known.items() if curve}
        return LiveReading(read=True, latest=latest, curves={trial: known[trial] for trial in wanted(latest)})

    async def curves(self, plan, metric, points):
        if self.away:
            raise TrackingError("no answer within 8 s")
        names = frozenset({plan.space.metric, "accuracy"})
        known = self.reported if metric in names else {}
        return {trial: tuple(curve) for trial, curve in known.items()}, names

    async def curves_of(self, trials, metric, points):
        if self.away:
            raise TrackingError("no answer within 8 s")
        known = self.reported
        return {trial: tuple(known[trial]) for trial in trials.values() if trial in known}


class FakeRunWriter:
    """An MLflow that has a run of each trial; `away` while it doesn't answer."""

    def __init__(self):
        self.away = False

    async def complete(self, results, tags, logged):
        if self.away:
            raise MlflowUnavailableError("away")
        runs = {each.name: MainRun(each.name, f"http://mlflow/{each.name}") for each in results.trials}
        return Completion(runs, complete=True)


class FakePictures:
    """Draws at once. `forgotten`: the sweeps whose picture was posted."""

    def __init__(self):
        self.forgotten = []
        self.encoding = asyncio.Lock()

    def get(self, results):
        return Picture(f"Results of {results.sweep}", b"PNG")

    def forget(self, results):
        self.forgotten.append(results.sweep)
