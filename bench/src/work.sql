-- An in-memory workload: inserts, an index, joins, grouping, text.
PRAGMA journal_mode = off;
CREATE TABLE item (id INTEGER PRIMARY KEY, owner INTEGER, name TEXT, price REAL);
INSERT INTO item
	WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < @ROUNDS@)
	SELECT i, i * 7919 % 1009, printf('item %d of %x', i, i * 31), i * 0.25 FROM n;
CREATE INDEX item_owner ON item (owner, price);
CREATE TABLE owner AS SELECT DISTINCT owner AS id, 'owner ' || owner AS name FROM item;
SELECT count(*), sum(price) FROM item JOIN owner ON owner.id = item.owner WHERE owner.name LIKE '%7%';
SELECT owner, count(*), max(name) FROM item GROUP BY owner ORDER BY 2 DESC, 1 LIMIT 3;
UPDATE item SET price = price * 1.5, name = upper(name) WHERE owner % 3 = 0;
DELETE FROM item WHERE id % 5 = 0;
SELECT count(*), sum(length(name)), round(avg(price), 3) FROM item WHERE name GLOB '*[aA]*';
