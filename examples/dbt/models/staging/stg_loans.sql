select loan_id, book_id, reader_id, lent_on, returned_on,
       {{ days_between('lent_on', 'returned_on') }} as days
from {{ source('desk', 'loans') }}
