# Image for workers of Dataflow, and for environment: docker of Flink and Spark. Not built here: there
# is no container engine on the machine that this was written on. Its steps were carried out in a bare
# Debian 13, whose worker took part in a job of Flink. tests/project/test_deploy.py compares the pins
# and names with the code.
#
#   bertloom worker-package deploy/build --with gcs
#   docker build -f deploy/worker.Dockerfile -t REGISTRY/bertloom-worker deploy/build

# The tag is the version of Beam that is pinned in pyproject.toml, and its Python the submitter's:
# --build-arg PYTHON=3.12; 3.13 where flow.Dockerfile's image submits.
ARG PYTHON=3.11
FROM apache/beam_python${PYTHON}_sdk:2.77.0
COPY bertloom-*.whl /opt/bertloom/
# The wheel asks for exactly the versions that were there when it was made.
RUN pip install --no-cache-dir /opt/bertloom/bertloom-*.whl \
    && python -c "import pipelines.shard_job.pipeline, pipelines.transforms"
# The base image's entry point, /opt/apache/beam/boot, is an engine's way in: leave it.
