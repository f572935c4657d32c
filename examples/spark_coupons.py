"""Draws coupons for orders in the middle of a Spark pipeline: Spark reads and sums up, a job draws.

The job reads the orders of a DataFrame and keeps each large one with probability 1/4, with a coupon of its own. A draw
counts once: if a process dies, the same orders have the same coupons. Spark goes on with what the job has committed.

    python examples/spark_coupons.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from clonos import Job, col, files, frames, random, uuid4


def drawn(orders: DataFrame) -> DataFrame:
    """Returns the orders that have got a coupon."""
    job = Job("spark_coupons", parallelism=2)
    large = job.source(frames.source(orders), name="orders").filter(col("cents") >= 5_000, name="large")
    lucky = large.filter(lambda order: random.random() < 0.25, name="lucky")
    lucky.map(lambda order: {**order, "coupon": str(uuid4())}, name="coupon").sink(files.parquet("out/coupons"))
    return job.to_dataframe(orders.sparkSession)


def main() -> None:
    """Makes ten thousand orders and prints the coupons of each customer."""
    spark = SparkSession.builder.master("local[4]").getOrCreate()
    orders = spark.range(10_000).selectExpr("id AS number", "id % 5 AS customer", "id % 9000 AS cents")
    drawn(orders).groupBy("customer").count().orderBy("customer").show()
    spark.stop()


if __name__ == "__main__":
    main()
