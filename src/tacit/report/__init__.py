"""What a guarantee looks like: pictures in `tacit.report.plots`, and the order in which an event spends."""
