# Sweepbot's image: nobody is root in it, nothing can be built or installed, and local/ is left out. See deploy/image-contents.
# The base is Docker's official image by the digest of its index, for every architecture. A newer one:
#   docker buildx imagetools inspect python:3.11-slim-bookworm
ARG BASE=python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b

FROM ${BASE} AS build
COPY requirements/run.txt /
RUN python -m venv --without-pip /opt/venv \
    && pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: -r /run.txt
WORKDIR /app
COPY bot bot
COPY handlers handlers
COPY k8s k8s
COPY reader reader
# Bytecode with hashes in place of times, so that two builds are equal. Some packages contain templates that don't compile.
RUN python -m compileall -q --invalidation-mode unchecked-hash . \
    && { python -m compileall -qq --invalidation-mode unchecked-hash /opt/venv/lib || true; } \
    && printf '#!/bin/sh\nexec python -m bot "$@"\n' > /opt/venv/bin/sweepbot && chmod 755 /opt/venv/bin/sweepbot

# The search service, an image of its own: docker build --target search
FROM ${BASE} AS build-search
COPY requirements/search.txt /
RUN python -m venv --without-pip /opt/venv \
    && pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary :all: -r /search.txt
WORKDIR /app
COPY search search
RUN python -m compileall -q --invalidation-mode unchecked-hash . \
    && { python -m compileall -qq --invalidation-mode unchecked-hash /opt/venv/lib || true; }

FROM ${BASE} AS search
RUN pip uninstall --yes --root-user-action=ignore wheel setuptools pip \
    && rm -rf /usr/local/lib/python3.11/ensurepip /var/log/* /var/cache/apt/* /var/cache/ldconfig/aux-cache
COPY --from=build-search /opt/venv /opt/venv
COPY --from=build-search /app /app
# More threads than one make a call of milliseconds slower, and each takes memory.
ENV PATH=/opt/venv/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
WORKDIR /app
USER 10001:10001
EXPOSE 6789
ENTRYPOINT ["python", "-m", "search"]

# The bot's image, the default target.
FROM ${BASE}
RUN apt-get update \
    && apt-get install -y --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && pip uninstall --yes --root-user-action=ignore wheel setuptools pip \
    && rm -rf /usr/local/lib/python3.11/ensurepip /var/log/* /var/cache/apt/* /var/cache/ldconfig/aux-cache
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app /app
ENV PATH=/opt/venv/bin:$PATH HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001:10001
EXPOSE 8080
# For Docker; Kubernetes uses the probes in deploy/.
HEALTHCHECK --start-period=60s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz', timeout=5)"]
ENTRYPOINT ["python", "-m", "bot"]
