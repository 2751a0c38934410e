"""The HTTP server: requests, answers, watches, discovery, authorization."""
