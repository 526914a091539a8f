"""Whether data is as a schema says: columns, types, ranges, nulls, shapes, rows."""
