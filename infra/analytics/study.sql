-- The tables of the Philly study (ATC'19) that any log yields, in SQL: DuckDB on a log of `sanjaya export`.
-- SET VARIABLE log = 'log.jsonl' names the file.

CREATE OR REPLACE TEMP VIEW events AS
SELECT
    "offset",
    headers ->> 'ce_type' AS type,
    CAST(headers ->> 'ce_time' AS TIMESTAMP) AS time,
    data ->> 'job_id' AS job_id,
    data
FROM read_json(
    getvariable('log'),
    format = 'newline_delimited',
    columns = {topic: 'VARCHAR', "offset": 'BIGINT', headers: 'JSON', data: 'JSON'}
)
WHERE topic = 'control';

CREATE OR REPLACE TEMP VIEW jobs AS
SELECT
    arrived.job_id,
    arrived.data ->> '$.spec.tenant' AS tenant,
    CAST(arrived.data ->> '$.spec.gpus.count' AS INTEGER) AS gpus,
    arrived.time AS arrived,
    (SELECT min(time) FROM events WHERE type = 'job.placed.v1' AND job_id = arrived.job_id) AS placed,
    ended.time AS ended,
    CASE ended.type
        WHEN 'job.succeeded.v1' THEN 'passed'
        WHEN 'job.cancelled.v1' THEN 'killed'
        ELSE 'unsuccessful'
    END AS status
FROM events AS arrived
LEFT JOIN events AS ended
    ON ended.job_id = arrived.job_id
    AND ended.type IN ('job.succeeded.v1', 'job.cancelled.v1', 'job.abandoned.v1', 'job.rejected.v1')
WHERE arrived.type = 'job.arrived.v1';

-- Table 5: how jobs end.
SELECT status, count(*) AS jobs, round(count(*) / sum(count(*)) OVER (), 3) AS ratio
FROM jobs
WHERE ended IS NOT NULL
GROUP BY status
ORDER BY status;

-- Figure 4: the wait for GPUs, by size.
SELECT
    CASE WHEN gpus = 1 THEN '1' WHEN gpus <= 4 THEN '2-4' ELSE '> 4' END AS size,
    count(*) AS jobs,
    round(median(date_diff('millisecond', arrived, placed)) / 1000, 3) AS median_wait_s,
    round(quantile_cont(date_diff('millisecond', arrived, placed), 0.95) / 1000, 3) AS p95_wait_s
FROM jobs
WHERE placed IS NOT NULL
GROUP BY size
ORDER BY size;

-- Table 6: failed attempts by reason.
SELECT data ->> 'failure' AS reason, count(*) AS trials, count(DISTINCT job_id) AS jobs
FROM events
WHERE type = 'failure.classified.v1'
GROUP BY reason
ORDER BY trials DESC, reason;
