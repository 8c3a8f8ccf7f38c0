"""Services: tools and models behind names, over MCP; judges stand on them."""
