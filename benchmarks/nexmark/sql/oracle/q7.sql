-- All bids of the highest price of their window.
SELECT auction, price, bidder, date_time, extra FROM bid
QUALIFY price = MAX(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECOND, date_time))
