"""What connects Laneway with other libraries. Each module needs an extra: `pip install "laneway[otel]"`."""
