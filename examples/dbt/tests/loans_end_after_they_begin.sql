select * from {{ ref('stg_loans') }} where days < 0
