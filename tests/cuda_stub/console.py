"""A Python process that a test talks to: runs the code in each line of JSON on its standard input, answers in kind.

A request is {"code": text}; the answer is {"value": ...}, what the last statement gave if it was an expression, or
{"error": [type, message]}. What the code prints goes to standard error. The process ends at the end of its input.
"""

import ast
import json
import os
import sys
from typing import Any


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    namespace: dict[str, Any] = {}
    for line in sys.stdin:
        try:
            answer = json.dumps({"value": run(json.loads(line)["code"], namespace)})
        except Exception as error:  # noqa: BLE001 - whatever the code raises is its answer
            answer = json.dumps({"error": [type(error).__name__, str(error)]})
        answers.write(answer + "\n")
        answers.flush()


def run(code: str, namespace: dict[str, Any]) -> Any:
    """Run the statements; return the value of the last one if it is an expression."""
    tree = ast.parse(code)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        last = None
    statements = tree.body[:-1] if last else tree.body
    exec(compile(ast.Module(statements, []), "<test>", "exec"), namespace)  # noqa: S102 - it is what this is for
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "<test>", "eval"), namespace)  # noqa: S307 - as above


if __name__ == "__main__":
    main()
