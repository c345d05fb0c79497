import asyncio
from base64 import b64encode

import bcrypt
import httpx
import pytest
from starlette.responses import PlainTextResponse

from vramscope.web.basic_auth import BasicAuth
from vramscope.web.refusals import Refusals


def hashed(password: str) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()


class Door:
    def __init__(self, users: dict[str, str]) -> None:
        self.users = users
        self.auth = BasicAuth(PlainTextResponse("inside"), lambda: self.users, Refusals())

    async def knock(self, authorization: str | bytes | None) -> httpx.Response:
        headers = {} if authorization is None else {"authorization": authorization}
        transport = httpx.ASGITransport(self.auth)
        async with httpx.AsyncClient(transport=transport, base_url="http://vramscope") as client:
            return await client.get("/", headers=headers)

    def ask(self, authorization: str | bytes | None) -> int:
        return asyncio.run(self.knock(authorization)).status_code


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode()).decode()}"


@pytest.fixture
def door() -> Door:
    return Door({"alice": hashed("öffne dich"), "bob": hashed("b" * 72)})


def test_without_users_everybody_passes():
    assert Door({}).ask(None) == 200


@pytest.mark.parametrize("word", ["Basic", "basic", "BASIC"])
def test_a_user_with_its_password_passes_again_and_again(door, word):
    header = basic("alice:öffne dich").replace("Basic", word)
    assert [door.ask(header) for _ in range(3)] == [200] * 3


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Bearer YWxpY2U6",
        basic("alice"),
        basic("alice:"),
        basic("alice:wrong"),
        basic("Alice:öffne dich"),
        basic("bob:öffne dich"),
        basic(":öffne dich"),
        basic("alice:\0"),
        b"Basic " + b64encode(b"\xff\xfe:x"),
        basic("alice:" + "x" * 10_000),
    ],
)
def test_anything_else_is_401_with_a_challenge(door, authorization):
    answer = asyncio.run(door.knock(authorization))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert "inside" not in answer.text


def test_bcrypt_reads_72_bytes_as_those_who_make_hashes_do(door):
    assert door.ask(basic("bob:" + "b" * 80)) == 200
    assert door.ask(basic("bob:" + "b" * 71)) == 401


def test_a_right_password_is_checked_once_and_forgotten_with_its_hash(door, monkeypatch):
    checks = []
    real = bcrypt.checkpw
    monkeypatch.setattr(bcrypt, "checkpw", lambda *question: checks.append(question) or real(*question))

    async def storm() -> list[int]:
        answers = await asyncio.gather(*(door.knock(basic("alice:öffne dich")) for _ in range(10)))
        return [answer.status_code for answer in answers]

    assert asyncio.run(storm()) == [200] * 10
    assert door.ask(basic("alice:öffne dich")) == 200
    assert len(checks) == 1
    door.users = {"alice": hashed("new")}
    assert door.ask(basic("alice:öffne dich")) == 401
    assert door.ask(basic("alice:new")) == 200


def test_a_flood_of_wrong_passwords_is_turned_away_and_hinders_nobody_who_is_known(door):
    async def flood() -> tuple[list[int], int]:
        assert (await door.knock(basic("alice:öffne dich"))).status_code == 200
        wrong = [asyncio.create_task(door.knock(basic(f"alice:{number}"))) for number in range(100)]
        await asyncio.sleep(0)
        known = await door.knock(basic("alice:öffne dich"))
        return [(await each).status_code for each in wrong], known.status_code

    answers, known = asyncio.run(flood())
    assert known == 200
    assert set(answers) == {401, 503}


def test_the_log_names_the_reason_and_no_secret(door, caplog):
    for header in (None, basic("alice:hunter2"), basic("hunter2:x"), basic("alice:hunter2")):
        door.ask(header)
    told = [record.reason for record in caplog.records]
    assert told == ["no user and password were given", "wrong password for alice", "unknown user"]
    assert "hunter2" not in caplog.text
    assert caplog.records[0].client == "127.0.0.1"
