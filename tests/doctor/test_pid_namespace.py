from tests.memory.trees import write

from vramscope.doctor._frame import State
from vramscope.doctor.pid_namespace import CHECK, INITIAL


def inside(made, namespace):
    link = made.proc / "self/ns/pid"
    link.parent.mkdir(parents=True)
    link.symlink_to(namespace)
    return made


def test_the_first_namespace_has_the_driver_s_numbers(machine):
    assert CHECK.look(inside(machine(), INITIAL)).state is State.OK


def test_a_container_does_not_find_itself_in_the_driver_s_list(machine, tmp_path):
    nowhere = {"VRAMSCOPE_HOST_PROC": str(tmp_path / "host")}
    found = CHECK.look(inside(machine(environment=nowhere), "pid:[4026532291]"))
    assert found.state is State.NOTE
    assert f"mount the host's /proc at {tmp_path}/host" in found.advice


def test_the_host_s_processes_help(machine, tmp_path):
    write(tmp_path / "host", {"1/status": "Name: init"})
    somewhere = {"VRAMSCOPE_HOST_PROC": str(tmp_path / "host")}
    assert CHECK.look(inside(machine(environment=somewhere), "pid:[4026532291]")).state is State.OK


def test_without_proc_it_is_not_known(machine):
    assert CHECK.look(machine()).state is State.NOTE
