-- All bids that may be the last ones: those of equal time too.
SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
QUALIFY RANK() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1
