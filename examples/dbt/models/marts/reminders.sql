select r.reader_id, r.name, count(*) as late, max(l.days) as longest
from {{ ref('late_loans') }} as l
join {{ source('desk', 'readers') }} as r on r.reader_id = l.reader_id
group by r.reader_id, r.name
