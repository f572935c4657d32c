-- An aggregate in place of ROW_NUMBER.
SELECT auction, bidder, last.price, last.channel, last.url, last.date_time, last.extra
FROM (
    SELECT auction, bidder, MAX_BY(STRUCT(price, channel, url, date_time, extra), date_time) AS last
    FROM bid GROUP BY auction, bidder
)
