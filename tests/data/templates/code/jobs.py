"""The handlers of base.yaml. Read as text by the doctor, never imported."""

from anarchon_ddb import Run, job


@job("export", timeout="50m")
def export(run: Run) -> None:
    run.save(1)


@job("hourly", overlap="queue")
def hourly(run: Run) -> None:
    run.save(1)


@job("export", timeout="50 minutes")
def slip(run: Run) -> None:
    run.save(1)


def plain(event, context):
    return None
