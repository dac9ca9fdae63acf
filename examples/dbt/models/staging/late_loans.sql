{{ config(materialized='ephemeral') }}
select * from {{ ref('stg_loans') }} where days > 28
