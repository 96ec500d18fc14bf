# FleetOpt's image: the wheels are built in one stage and installed, without network, in the next.
FROM python:3.11-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY fleetopt/ fleetopt/
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[compress]'

FROM python:3.11-slim
# /traces is where a volume with trace files goes; it belongs to the user that writes them.
RUN useradd --system --uid 10001 --user-group --no-create-home fleetopt \
    && install --directory --owner=fleetopt --group=fleetopt /traces
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links=/wheels 'fleetopt[compress]'
USER 10001:10001
# A worker keeps nothing on disk, so all may be read-only but where Compose mounts a tmpfs.
WORKDIR /tmp
ENV PYTHONUNBUFFERED=1
# No HEALTHCHECK: one image serves several commands, and a worker that can't go on ends itself, so
# that its supervisor (Compose's `restart`, Kubernetes) starts it again.
ENTRYPOINT ["fleetopt"]
CMD ["worker"]
