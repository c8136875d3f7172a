# json, re, hashlib, decimal and sqlite3 in one program.
import decimal
import hashlib
import json
import re
import sqlite3

rows = [{"n": i, "name": "item %d" % i, "share": i / 7} for i in range(120)]
text = json.dumps(rows)
assert json.loads(text) == rows
words = re.findall(r"item (\d+[02468])\b", text)
decimal.getcontext().prec = 60
pi = sum((decimal.Decimal(1) / 16**k * (decimal.Decimal(4) / (8 * k + 1)
          - decimal.Decimal(2) / (8 * k + 4) - decimal.Decimal(1) / (8 * k + 5)
          - decimal.Decimal(1) / (8 * k + 6)) for k in range(45)), decimal.Decimal(0))
db = sqlite3.connect(":memory:")
db.execute("create table t (n integer primary key, name text, share real)")
db.executemany("insert into t values (:n, :name, :share)", rows)
total = db.execute("select count(*), sum(share), max(name) from t where n % 3 = 1").fetchone()
print(len(text), len(words), str(pi)[:50])
print(total, hashlib.sha256(text.encode()).hexdigest())
print(hashlib.md5(text.encode()).hexdigest(), hashlib.blake2b(text.encode()).hexdigest()[:32])
