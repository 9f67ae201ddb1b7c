"""What a guarantee looks like: pictures in `tacit.reports.plots`, and the order in which an event spends."""
