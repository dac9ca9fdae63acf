{{ config(materialized='incremental', unique_key='book_id') }}
select b.book_id, b.title, count(l.loan_id) as loans,
       rank() over (order by count(l.loan_id) desc) as place
from {{ ref('stg_books') }} as b
left join {{ ref('stg_loans') }} as l on l.book_id = b.book_id
group by b.book_id, b.title
