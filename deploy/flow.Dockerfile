# The command `bertloom` with its flows, models and object stores, and a Prefect worker's `prefect`
# and `git`. From the checkout's root:
#
#   docker build -f deploy/flow.Dockerfile -t bertloom .
#   docker run -v "$PWD/runs:/data/runs" bertloom run sample --store runs/store
#
# --build-arg EXTRAS=flows,s3 leaves PyTorch out, for corpora alone. PyTorch is the build for the CPU;
# --build-arg TORCH_INDEX=https://pypi.org/simple installs it with CUDA.
FROM python:3.13.7-slim-trixie

ARG EXTRAS=all
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 bertloom \
    && mkdir /data && chown bertloom /data

WORKDIR /opt/bertloom
COPY pyproject.toml README.md LICENSE requirements.lock ./
COPY bertloom bertloom
COPY flows flows
COPY model model
COPY pipelines pipelines
COPY schemas schemas
# The lock is a constraint: only packages of the extras are installed.
RUN pip install --no-cache-dir --extra-index-url "${TORCH_INDEX}" \
        --constraint requirements.lock ".[${EXTRAS}]"

ENV DO_NOT_TRACK=1 \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30
USER 1000
WORKDIR /data
ENTRYPOINT ["bertloom"]
CMD ["--help"]
