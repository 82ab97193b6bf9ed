# One image for every process of Trainyard; docker-compose.yml says which command each container runs.
FROM python:3.11-slim-bookworm

# bubblewrap, libseccomp2: the sandbox of trainers. skopeo, umoci: images of jobs. tini: reaps what ranks leave behind and hands signals on. gcc: Triton builds
# with it what starts its kernels on GPUs.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap gcc libc6-dev libseccomp2 skopeo tini umoci \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 trainyard \
    # A new volume takes its owner from the directory of the image that it covers: without one it is root's.
    && install --directory --owner=trainyard --group=trainyard /var/lib/trainyard /srv/trainyard/files

WORKDIR /opt/trainyard
# EXTRAS=postgres,search makes a small image for API and coordinator; nodes need train, and gpu where there are GPUs.
ARG EXTRAS=train,gpu,postgres,search,inference,evaluate

# Dependencies first: they change less often than the sources, so their layer is used again.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN mkdir app config recipes simulation tasks trainyard workers \
    && pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]" \
    && pip uninstall --yes trainyard \
    && python -OO -m compileall -q "$(python -c 'import pathlib, sqlalchemy; print(pathlib.Path(sqlalchemy.__file__).parent)')"

COPY app app
COPY config config
COPY recipes recipes
COPY simulation simulation
COPY tasks tasks
COPY trainyard trainyard
COPY workers workers
RUN pip install --no-cache-dir --constraint constraints.txt --no-deps .

# A user's config.py beside train.py must not stand in for ours.
ENV PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    TRAINYARD_DATA_DIR=/var/lib/trainyard
USER trainyard
WORKDIR /var/lib/trainyard
VOLUME /var/lib/trainyard
EXPOSE 8000
ENTRYPOINT ["tini", "-g", "--"]
CMD ["trainyard", "api"]
