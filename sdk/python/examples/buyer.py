"""A buyer that pays agents within a budget.

    TOLL_API_KEY=... python3 buyer.py http://127.0.0.1:8000 "how are you"
"""

import sys

import httpx
from toll import Toll
from toll.http import Budget, HTTPXPayer, Limits, PaymentError, host_of


def main(agent: str, text: str) -> None:
    """Calls an agent and prints the response and the cost."""
    limits = Limits(hosts=[host_of(agent)], credits_per_call=5, credits_per_day=50, credits=100)
    budget = Budget(limits)
    with Toll() as toll, httpx.Client(transport=HTTPXPayer(toll, budget), timeout=60) as http:
        try:
            answer = http.post(f"{agent}/ask", json={"text": text})
        except PaymentError as e:
            sys.exit(str(e))
        print(answer.json()["text"])
        print(f"{budget.spent} credits spent", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
