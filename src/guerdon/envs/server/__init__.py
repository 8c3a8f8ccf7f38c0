"""Serving environments over HTTP and WebSocket."""
