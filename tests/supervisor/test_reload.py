"""A plan file that is written, renamed over, swapped by a symbolic link, touched, broken and mended."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from vramscope.events import Event, PlanReloaded, PlanReloadFailed
from vramscope.plan.parse import load_plan
from vramscope.plan.schema import Plan
from vramscope.steps._catalog import step_kinds
from vramscope.supervisor.reload import Reloader, ReloadError

# A file that is gone or half written for as long as two looks is a fault: a busy machine must not take so long.
INTERVAL_SECONDS = 0.05
LOOKS = 8


def plan(name: str) -> str:
    return f"version: 1\nname: {name}\nsteps: [{{wait: 1s}}]\n"


def write(path: Path, text: str) -> None:
    """Write a file in its place, so that it is never seen empty or half written; the rest of a longer one is blank."""
    with path.open("r+b", buffering=0) as stream:
        stream.write(text.ljust(path.stat().st_size).encode())


class Stage:
    """A reloader over a file, and what it told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.told: list[Event] = []
        self.adopted: list[str] = []
        self.reloader = Reloader(
            load_plan(path, step_kinds()), step_kinds(), self._adopt, self.told.append, INTERVAL_SECONDS
        )

    def _adopt(self, plan: Plan) -> None:
        self.adopted.append(plan.name)

    def play(self, story: Callable[[], Awaitable[None]]) -> None:
        async def body() -> None:
            watching = asyncio.create_task(self.reloader.watch())
            try:
                await self.quiet()
                await story()
            finally:
                watching.cancel()

        asyncio.run(body())

    async def until(self, count: int) -> None:
        """Wait for so many events, and that no other follows."""
        async with asyncio.timeout(60):
            while len(self.told) < count:  # noqa: ASYNC110 - events come by a callback
                await asyncio.sleep(INTERVAL_SECONDS)
        await self.quiet()
        assert len(self.told) == count

    @staticmethod
    async def quiet() -> None:
        await asyncio.sleep(LOOKS * INTERVAL_SECONDS)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    path = tmp_path / "plan.yaml"
    path.write_text(plan("one"))
    return Stage(path)


def test_a_write_is_one_reload_and_a_touch_is_none(stage):
    async def story() -> None:
        os.utime(stage.path)
        write(stage.path, plan("one"))
        await stage.until(0)
        write(stage.path, plan("two"))
        await stage.until(1)

    stage.play(story)
    assert stage.adopted == ["two"]


def test_an_editors_rename_is_one_reload_also_where_the_file_is_gone_for_a_moment(stage):
    async def story() -> None:
        new = stage.path.with_suffix(".swp")
        new.write_text(plan("two"))
        new.replace(stage.path)
        await stage.until(1)
        new.write_text(plan("three"))
        stage.path.rename(f"{stage.path}~")
        new.rename(stage.path)
        await stage.until(2)

    stage.play(story)
    assert stage.adopted == ["two", "three"]
    assert all(isinstance(event, PlanReloaded) for event in stage.told)


def test_the_swap_of_kubernetes_data_link_is_one_reload(tmp_path):
    def publish(version: str, text: str) -> None:
        (tmp_path / version).mkdir()
        (tmp_path / version / "plan.yaml").write_text(text)
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    publish("..2026_01", plan("one"))
    (tmp_path / "plan.yaml").symlink_to("..data/plan.yaml")
    stage = Stage(tmp_path / "plan.yaml")

    async def story() -> None:
        publish("..2026_02", plan("one"))  # another key of the ConfigMap has changed
        await stage.until(0)
        publish("..2026_03", plan("two"))
        await stage.until(1)

    stage.play(story)
    assert stage.adopted == ["two"]


def test_a_bad_file_is_told_with_line_and_column_once_and_a_good_one_is_taken_up_after_it(stage):
    async def story() -> None:
        write(stage.path, "version: 1\nsteps:\n  - lod: x\n")
        await stage.until(1)
        os.utime(stage.path)
        await stage.until(1)
        write(stage.path, plan("one"))  # back to what runs: nothing to adopt, but all is well again
        await stage.until(2)
        write(stage.path, plan("two"))
        await stage.until(3)

    stage.play(story)
    bad, back, new = stage.told
    assert isinstance(bad, PlanReloadFailed)
    assert f"{stage.path}:3:5: steps[0]: expected one of " in bad.problem
    assert 'did you mean "load"?' in bad.problem
    assert (back.is_new, new.is_new) == (False, True)
    assert stage.adopted == ["two"]


def test_a_file_that_is_gone_is_told_once_and_found_again(stage):
    async def story() -> None:
        text = stage.path.read_text()
        stage.path.unlink()
        await stage.until(1)
        new = stage.path.with_suffix(".new")
        new.write_text(text)
        new.replace(stage.path)
        await stage.until(2)

    stage.play(story)
    assert "cannot be read: No such file" in stage.told[0].problem
    assert not stage.told[1].is_new


def test_who_asks_gets_an_answer_for_what_the_file_is_now(stage):
    async def story() -> None:
        await stage.reloader.reload()
        write(stage.path, plan("two"))
        await asyncio.gather(*(stage.reloader.reload() for _ in range(3)))
        write(stage.path, "version: 2\n")
        with pytest.raises(ReloadError, match="expected 1, the only version"):
            await stage.reloader.reload()

    stage.play(story)
    assert stage.adopted == ["two"]
    assert isinstance(stage.told[0], PlanReloaded)
    assert not stage.told[0].is_new


def test_what_changed_between_the_start_and_the_first_look_is_found(stage):
    stage.path.write_text(plan("two"))

    async def story() -> None:
        await stage.until(1)

    stage.play(story)
    assert stage.adopted == ["two"]


def test_a_pipe_in_the_place_of_the_file_is_told_and_the_next_file_is_found(stage):
    async def story() -> None:
        stage.path.unlink()
        os.mkfifo(stage.path)
        await stage.until(1)
        with pytest.raises(ReloadError, match="a pipe or a device"):
            await stage.reloader.reload()
        await stage.until(2)
        stage.path.unlink()
        stage.path.write_text(plan("two"))
        await stage.until(3)

    stage.play(story)
    assert stage.adopted == ["two"]


def test_a_plan_from_a_pipe_is_read_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(plan("one"),))
    writer.start()
    stage = Stage(path)
    writer.join()

    async def story() -> None:
        await stage.until(0)
        path.unlink()
        path.write_text(plan("two"))
        await stage.until(1)

    stage.play(story)
    assert stage.adopted == ["two"]
