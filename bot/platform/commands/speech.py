"""Say how a text speaks: whether it asks, denies, muses, tells, or chats. Pure; time grows with the text."""

import re


def _any(phrases: str, before: str = r"\b", after: str = r"\b") -> re.Pattern[str]:
    """Return the pattern of any of some phrases, with ` | ` between."""
    found = " ".join(phrases.split()).replace(" | ", "|")
    return re.compile(f"{before}(?:{found}){after}", re.IGNORECASE)


_LEAD = _any(
    r"""@?sweepbot | dear | ugh+ | h+m+ | u+m+ | so | ok(?:ay)? | k | omg | wow | lol | haha | hey+ | hi+
    | hello | yo | oh | ah | argh | damn | alright | right | well | and | also | anyway | sorry | wait
    | actually | now | then | fyi | btw | by the way | heads up | no | yes | yeah | just so you know
    | (?:hold|hang) on(?: a (?:sec|second|minute|min|moment))? | one (?:sec|moment|minute) | nope | nah
    | just curious | (?:quick )?question | remind me | tell me | do you know | any idea | go ahead and
    | please | pls | plz | kindly | just | maybe | perhaps | let'?s | time to | feel free to
    | remember to | (?:can|could|would|will) (?:you|u|we|i)
    | (?:i|we)(?: would|'d)? (?:want|need|like|love|prefer|wish)(?: to)?
    | (?:i (?:think|guess) )?we (?:should|can|could) | you (?:can|may|should)""",
    before="(?:",
    after=r"\b[\s,:;.!-]*)*",
)  # what goes before the first word that matters
NOT = _any(
    r"""do not | dont | never | let'?s not | hold off (?:on|with)
    | (?:was|were) (?:about|going|planning|meant) to | had (?:intended|planned|meant) to
    | (?:would|should|must)(?:n'?t| not| never) | won'?t | not to | no longer | no (?:need|reason) to | avoid
    | no(?= (?!\w+ed\b)(?:cancel|stop|kill|abort|paus|resum|drain|extend|start|rerun|retry))
    | refrain from | rather not | (?:nobody|no one|none of (?:you|us))(?: should| must| may| please)?""",
    after=r"\b|^not\b(?! sure)",
)
DENIAL = "dont"  # the stem of what `NOT` becomes
ASKING = set(
    """when why where is are was were does did has have had hasn't isn't aren't who whose what should
    told almost nearly still undecided""".split()  # noqa: SIM905
)  # first words of what changes nothing
_MUSING = _any(
    """might | thinking (?:of|about) | considering | contemplating | what if | (?:should|shall) (?:i|we)
    | wonder(?:ing)? | ^if | suppose | (?:should|could|would)(?:n't)?(?:'ve| have) | premature
    | maybe | perhaps
    | is it (?:ok|okay|safe|fine)"""
)
_IDLE = _any(
    """wonder(?:ing)? (?:whether|if|why)(?! (?:you|we|i) ) | worth (?:it|trying) | make sense | overkill
    | at some point | some ?day | eventually | not (?:today|tonight)
    | (?:would|could|should)(?:'ve| have) | i wish | those were | used to | (?:i|we)'d have
    | ^(?:told|almost|nearly|(?:still )?undecided) | imagin(?:e|ing) | in theory | no plans
    | dream(?:t|ed)? | got round
    | never got"""
)
_PAST = _any(
    r"""(?:(?:yesterday|earlier|last \w+|this \w+),? )?(?:did|has|have|had|was|were|is|are|why|when
    | what \w+ did
    | (?:i|we|he|she|they)(?: have|'ve| had)?(?: just| never| accidentally| already)?
    (?!need|want)(?:\w+ed|ran|swept) | ran | swept | tried | launched | started)"""
)
_CHAT = _any(
    r"""you(?:'?re| r| are| rock) | (?:good|nice|great|best|cool|bad) (?:bot|job|work) | loves? (?:you|it)
    | have a (?:\w+ )?(?:good|nice|great|lovely) | good (?:night|morning|evening) | obliged | appreciate
    | well done | see you | bye | congrat\w* | merry | happy (?:new|birthday|friday) | for your help
    | joke | wrong (?:chat|channel|thread|window|person) | meant for | ignore (?:that|me|this) | my bad
    | oops | forget it | lunch | coffee | weather | weekend plans"""
)
_BEYOND = _any(  # what people ask for and no command does
    r"""reboot | write | book(?! .*gpu) | review | e?mail | merge | deploy | install | upgrade | fix | debug
    | buy | order | call | translate | draft | push | commit | rebase | edit | sing | dance | invite
    | teach | play | cook | bring | hire | wipe | ssh | proofread | summari[sz]e | clean | refactor
    | (?:create|add|delete|remove|make|rename|update|change|format|drain|restart|cordon|fire|approve
    | close|open) (?:a |the |my |our |this |new )*(?:branch|space|file|repo|user|account|channel|column
    | profile|dataset|node|server|cluster|scheduler|pod|config|code|paper|pr|pull|issue|ticket
    | meeting|thread|message|post|comment|bob|pizza|door|window|password)(?:e?s)?"""
)
CLAUSE = re.compile(r"[,.;:!?\n](?=\s|$)|\s(?:but|instead|because|then|and just)\s", re.IGNORECASE)
_REQUEST = _any(
    r"""(?:i|we)(?: would|'d)? (?:just |really |also )?(?:want|need|like|love|prefer|wish|have to
    | must|should|can|could)(?!'t|not) | please | pls | plz | (?:can|could|would|will) (?:you|u|we|i) | let'?s
    | wants? | (?:asked|told) (?:me|us) | says? | said | suggest(?:s|ed)? | go ahead | asap
    | (?:i|we)'?ll (?:take|have|try|go)""",
    after=r"\b|[?=]",
)
_DO = _any(
    """run | start | launch | train | try | kick | sweep | queue | submit | redo | rerun | repeat | give
    | get | use | make | do | need | go | put | fire | spin | take | one more | same | again | show | cancel
    | stop | kill | end | abort | pause | hold | resume | extend | raise | drop | move | add
    | compare | check""",
    before=r"(?:^|[,.;:!?] ?)(?:so |then |and )?",
)
_OPEN = _any("(?:what|how|where|who)(?:'?s)? | why | which | when will")  # an open question
_SUBJECT = _any(
    r"""(?:i|we|he|she|they|people|everyone)(?:'\w+)? (?!(?:want|need|would|like|run|start|launch)\b)\w+
    | we'd (?!like|love)\w+ | \w+ (?:launched|started|ran|tried|submitted|swept) | (?:it|this) \w+[^\We]ed
    | is | was | were | thinks | thought | has | had | got | will | turned
    | feels | seems | looks"""
)


def is_story(text: str) -> bool:
    """Return whether people do something in a text and none of its words asks for anything."""
    return bool(_SUBJECT.search(text)) and not is_request(text)


def is_request(text: str) -> bool:
    return bool(_REQUEST.search(text) or _DO.search(gist(text)))


def is_told(text: str) -> bool:
    """Return whether a text tells something and wants nothing: chat that a helper leaves alone."""
    return is_story(text) and not (first_word(text) in ASKING or "?" in text or _OPEN.search(text))


def gist(text: str) -> str:
    """Return a text without what goes before the first word that matters: greetings, wishes, politeness."""
    text = text.strip()
    return text[found.end() :] if (found := _LEAD.match(text)) else text


def first_word(text: str) -> str:
    return re.split(r"[\s,.;:!?]", gist(text), maxsplit=1)[0].lower()


def is_question(text: str) -> bool:
    """Return whether a text asks or muses, so that it changes nothing."""
    word = first_word(text)
    return word in ASKING or word.removesuffix("'s") in ASKING or is_musing(text)


def is_musing(text: str) -> bool:
    return bool(_MUSING.search(text))


def is_idle(text: str) -> bool:
    """Return whether a text only chats, or muses about what isn't for now."""
    return bool(_IDLE.search(text))


def is_chat(text: str) -> bool:
    return bool(_CHAT.search(text))


def is_past(text: str) -> bool:
    """Return whether a text is about what was or is: `I started lr on main yesterday`, `is it running?`."""
    return bool(_PAST.match(gist(text)))


def is_beyond(text: str) -> bool:
    """Return whether a text asks for what no command does."""
    return bool(_BEYOND.match(gist(text)))
