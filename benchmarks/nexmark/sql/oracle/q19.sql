-- Without the columns in which bids of equal price differ.
SELECT auction, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number, price FROM bid
QUALIFY rank_number <= 10
