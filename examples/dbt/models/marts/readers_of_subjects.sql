select b.subject, count(*) as loans, count(distinct l.reader_id) as readers
from {{ ref('stg_loans') }} as l
join {{ ref('stg_books') }} as b on b.book_id = l.book_id
group by b.subject
