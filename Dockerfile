# levelog and what it needs to run: Python, the locked dependencies, the package. Nothing that builds is in the result.
#
#   docker build -t levelog .
#   docker build -t levelog --build-arg BASE=registry.example.com/python:3.13-slim .
#
# Operators are not part of it: mount their files, or derive an image that has them:
#
#   FROM levelog
#   COPY webs.py /operators/

ARG BASE=python:3.12-slim

FROM ${BASE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The environment gets no pip of its own; the base image's pip fills it.
RUN python -m venv --without-pip /opt/levelog
# Before the sources, so that a change of code does not install the dependencies again. Wheels only: there is no
# compiler here, and a source distribution would run code that no hash of a wheel covers.
COPY requirements/runtime.txt requirements/
RUN pip --python /opt/levelog/bin/python install --quiet --only-binary :all: --require-hashes -r requirements/runtime.txt
COPY requirements/build.txt requirements/
RUN pip install --quiet --only-binary :all: --require-hashes -r requirements/build.txt
COPY . .
# Without isolation, which would fetch a build backend that is not locked.
RUN pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && pip --python /opt/levelog/bin/python install --quiet --no-deps --no-index /wheels/*.whl \
 && /opt/levelog/bin/levelog --version

FROM ${BASE}
# Directories that hold state, owned by the user of the processes: a named volume that is mounted there for the first
# time takes over owner and mode, so nobody needs to be root to prepare it.
RUN install -d -m 0700 -o 65532 -g 65532 /var/lib/levelog /run/levelog /run/levelog/cluster /run/levelog/keys
COPY --from=build /opt/levelog /opt/levelog
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
