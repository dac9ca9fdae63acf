-- What dashboards read: each view is a published table.

CREATE VIEW weekly_revenue AS
SELECT week, region, sum(amount) AS revenue, count(DISTINCT order_id) AS orders, count(DISTINCT customer_id) AS customers
FROM sales
GROUP BY week, region;

-- The mean of seven days, also of days without sales in between.
CREATE VIEW trend AS
SELECT category, day, revenue,
       sum(revenue) OVER (
           PARTITION BY category ORDER BY day RANGE BETWEEN INTERVAL '6 days' PRECEDING AND CURRENT ROW
       ) AS week_revenue
FROM daily;

CREATE VIEW year_to_date AS
SELECT category, day, sum(revenue) OVER (PARTITION BY category, extract(year FROM day) ORDER BY day) AS revenue
FROM daily;

CREATE VIEW best_sellers AS
SELECT category, product_id, product, pieces
FROM (
    SELECT category, product_id, product, sum(quantity) AS pieces,
           row_number() OVER (PARTITION BY category ORDER BY sum(quantity) DESC, product_id) AS place
    FROM sales
    GROUP BY category, product_id, product
) AS ranked
WHERE place <= 5;

-- Products to be ordered again: fewer pieces than the product's own limit.
CREATE VIEW stock_alerts AS
SELECT p.product_id, p.name, s.country, t.pieces, p.reorder_at
FROM stock AS t
JOIN products AS p ON p.product_id = t.product_id
JOIN suppliers AS s ON s.supplier_id = p.supplier_id
WHERE t.pieces < p.reorder_at;

CREATE VIEW open_payments AS
SELECT t.order_id, o.customer_id, o.day, t.total, coalesce(p.paid, 0.00) AS paid
FROM order_totals AS t
JOIN placed AS o ON o.order_id = t.order_id
LEFT JOIN paid AS p ON p.order_id = t.order_id
WHERE coalesce(p.paid, 0.00) < t.total AND o.status <> 'placed';

CREATE VIEW customer_value AS
SELECT c.customer_id, c.region, c.segment, count(*) AS orders, sum(t.total) AS revenue,
       CASE WHEN sum(t.total) >= 50000 THEN 'gold' WHEN sum(t.total) >= 10000 THEN 'silver' ELSE 'plain' END AS tier
FROM order_totals AS t
JOIN placed AS o ON o.order_id = t.order_id
JOIN customers AS c ON c.customer_id = o.customer_id
GROUP BY c.customer_id, c.region, c.segment;

-- How soon customers come back, by week.
CREATE VIEW loyalty AS
SELECT o.week, count(*) AS orders,
       count(*) FILTER (WHERE r.day_before >= o.day - INTERVAL '30 days') AS within_30_days
FROM visits AS r JOIN placed AS o ON o.order_id = r.order_id
GROUP BY o.week;

CREATE VIEW today AS
SELECT category, region, grouping(category, region) AS level, sum(amount) AS revenue, count(*) AS items
FROM last_day
GROUP BY ROLLUP (category, region);
