"""One stack for all tests of this folder, taken down whatever happens."""

from collections.abc import Iterator

import pytest

from .stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("stack")
    for folder in (directory, *directory.parents[:2]):
        folder.chmod(0o755)  # the services are not root, and read their configuration here
    stack = Stack(directory)
    stack.down()  # what a killed run may have left
    healthy = False
    try:
        stack.up()
        healthy = True
        yield stack
    finally:
        if request.session.testsfailed or not healthy:
            print(stack.compose("ps", "--all"), stack.compose("logs", "--tail", "40"))
        stack.down()
