-- An aggregate in place of a join with the highest price: of equal bids one is left.
SELECT highest.auction, highest.price, highest.bidder, highest.date_time, highest.extra
FROM (
    SELECT window(date_time, '10 seconds') AS window, MAX(STRUCT(price, auction, bidder, date_time, extra)) AS highest
    FROM bid GROUP BY window(date_time, '10 seconds')
)
