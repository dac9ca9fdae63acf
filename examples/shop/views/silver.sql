-- What the shop's Bronze tables say, put in order. Only other views read these.

-- An order with its customer, and what day and week it belongs to.
CREATE TEMPORARY VIEW placed AS
SELECT o.order_id, o.customer_id, o.placed_at, o.status, o.carrier, c.region, c.segment,
       CAST(o.placed_at AS date) AS day,
       CAST(date_trunc('week', o.placed_at) AS date) AS week
FROM orders AS o JOIN customers AS c ON c.customer_id = o.customer_id
WHERE o.status <> 'cancelled';

-- An item with all that is known about it: a join of five tables.
CREATE TEMPORARY VIEW sales AS
SELECT p.order_id, i.line, p.customer_id, p.region, p.segment, p.placed_at, p.day, p.week,
       i.product_id, a.name AS product, a.category, s.country,
       i.quantity, CAST(i.quantity * i.unit_price AS decimal(12,2)) AS amount
FROM placed AS p
JOIN items AS i ON i.order_id = p.order_id
JOIN products AS a ON a.product_id = i.product_id
JOIN suppliers AS s ON s.supplier_id = a.supplier_id;

CREATE TEMPORARY VIEW order_totals AS
SELECT order_id, sum(amount) AS total, sum(quantity) AS pieces, count(*) AS lines
FROM sales
GROUP BY order_id;

CREATE TEMPORARY VIEW paid AS
SELECT order_id, sum(amount) AS paid, max(paid_at) AS paid_at
FROM payments
GROUP BY order_id;

-- An order beside the one that its customer placed before.
CREATE TEMPORARY VIEW visits AS
SELECT order_id, customer_id, day, lag(day) OVER (PARTITION BY customer_id ORDER BY placed_at, order_id) AS day_before
FROM placed;

-- What is left of each product.
CREATE TEMPORARY VIEW stock AS
SELECT p.product_id, coalesce(m.came, 0) - coalesce(s.went, 0) AS pieces
FROM products AS p
LEFT JOIN (SELECT product_id, sum(quantity) AS came FROM movements GROUP BY product_id) AS m
       ON m.product_id = p.product_id
LEFT JOIN (SELECT product_id, sum(quantity) AS went FROM sales GROUP BY product_id) AS s
       ON s.product_id = p.product_id;

-- The last day of sales, as it moves with the newest order.
CREATE TEMPORARY VIEW last_day AS
SELECT * FROM sales WHERE placed_at > (SELECT max(placed_at) FROM orders) - INTERVAL '24 hours';

CREATE TEMPORARY VIEW daily AS
SELECT category, day, sum(amount) AS revenue, count(DISTINCT order_id) AS orders
FROM sales
GROUP BY category, day;
