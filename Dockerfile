# jepsen-run in a container: docs/how-to/container.md.
# BASE is any image of Linux with Python 3.11 or newer and pip.
ARG BASE=python:3.12-slim
FROM ${BASE}
ARG PIP_INDEX_URL

# Debian's own Python installs packages only if it is told to; what BASE already has is not fetched again.
ENV PIP_BREAK_SYSTEM_PACKAGES=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY . /src
RUN python3 -m pip install --quiet hatchling \
 && python3 -m pip install --quiet --no-build-isolation /src \
 && rm -rf /src

# The user who owns the runs: docker build --build-arg USER_ID="$(id -u)" makes an image whose runs are yours.
ARG USER_ID=1000
RUN useradd --uid "$USER_ID" --create-home jepsen-run && install -d -o jepsen-run /work /work/store
ENV PYTHONUNBUFFERED=1
USER jepsen-run
WORKDIR /work
VOLUME /work/store
ENTRYPOINT ["jepsen-run"]
CMD ["--help"]
