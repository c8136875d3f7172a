"""Text, numbers and objects as scripts handle them. Argument: rounds."""
import decimal
import hashlib
import json
import re
import sys


class Account:
    def __init__(self, name):
        self.name = name
        self.balance = decimal.Decimal(0)
        self.history = []

    def book(self, amount):
        self.balance += amount
        self.history.append(float(amount))


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def work(round_number):
    names = [f"name{i % 37}" for i in range(400)]
    accounts = {n: Account(n) for n in names}
    for i, n in enumerate(names):
        accounts[n].book(decimal.Decimal(i * round_number) / 7)
    text = json.dumps({n: [str(a.balance), a.history] for n, a in sorted(accounts.items())})
    back = json.loads(text)
    digits = re.findall(r"(\d+)\.(\d{2})", text)
    top = sorted(back.items(), key=lambda item: (-len(item[1][1]), item[0]))[:5]
    digest = hashlib.sha256(text.encode()).hexdigest()
    return len(digits) + len(top) + fib(15) + int(digest[:6], 16) % 1000


print(sum(work(i) for i in range(int(sys.argv[1]))))
