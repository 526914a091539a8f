"""HTTP: routes in small files, one per thing that users know."""
