select book_id, trim(title) as title, lower(subject) as subject from {{ source('desk', 'books') }}
