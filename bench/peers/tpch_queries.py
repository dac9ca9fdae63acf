"""The queries of ``examples/tpch`` in SQL, as TPC-H has them; where the last place is shared, the least key has it."""

from __future__ import annotations

QUERIES = {
    "pricing_summary": """
        select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge,
               avg(l_quantity) as avg_qty, avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc,
               count(*) as count_order
        from lineitem where l_shipdate <= date '1998-09-02' group by l_returnflag, l_linestatus""",
    "shipping_priority": """
        select l_orderkey, o_orderdate, o_shippriority, sum(l_extendedprice * (1 - l_discount)) as revenue
        from lineitem join orders on l_orderkey = o_orderkey join customer on o_custkey = c_custkey
        where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate, l_orderkey limit 10""",
    "local_supplier_volume": """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from lineitem join orders on l_orderkey = o_orderkey join customer on o_custkey = c_custkey
             join supplier on l_suppkey = s_suppkey and c_nationkey = s_nationkey
             join nation on s_nationkey = n_nationkey join region on n_regionkey = r_regionkey
        where r_name = 'ASIA' and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
        group by n_name""",
    "forecast_revenue_change": """
        select sum(l_extendedprice * l_discount) as revenue from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
              and l_discount between 0.05 and 0.07 and l_quantity < 24""",
    "returned_items": """
        select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name, c_address,
               c_phone, c_comment
        from lineitem join orders on l_orderkey = o_orderkey join customer on o_custkey = c_custkey
             join nation on c_nationkey = n_nationkey
        where o_orderdate >= date '1993-10-01' and o_orderdate < date '1994-01-01' and l_returnflag = 'R'
        group by c_custkey, c_name, c_acctbal, n_name, c_address, c_phone, c_comment
        order by revenue desc, c_custkey limit 20""",
    "large_volume_customers": """
        select o_orderkey, o_custkey, o_orderdate, o_totalprice, sum(l_quantity) as quantity, c_name
        from customer join orders on c_custkey = o_custkey join lineitem on o_orderkey = l_orderkey
        where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)
        group by o_orderkey, o_custkey, o_orderdate, o_totalprice, c_name
        order by o_totalprice desc, o_orderdate, o_orderkey limit 100""",
}
