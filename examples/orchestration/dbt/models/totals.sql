select region, count(*) as orders, sum(amount) as amount
from {{ source('sales', 'orders') }}
group by region
