"""Elasticsearch and OpenSearch: the input receives bulk requests (`server`), the output makes them (`client`)."""
