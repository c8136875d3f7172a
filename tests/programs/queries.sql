create table item (id integer primary key, name text, price real, kind integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 1500)
insert into item select i, 'item ' || i, i * 1.25, i % 7 from n;
create index by_kind on item (kind, price);
select kind, count(*), round(avg(price), 3), max(name) from item group by kind order by kind;
update item set price = price * 1.1 where kind in (2, 3);
select a.id, b.id from item a join item b on b.id = a.id + 7 and b.kind = a.kind
	where a.price > 1500 order by a.id desc limit 5;
select substr(name, 6), price from item where name like '%99' order by 2;
delete from item where kind = 5;
select count(*), sum(id), printf('%.4f', sum(price)) from item;
