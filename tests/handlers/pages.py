"""Pages of the HTTP server, and their content."""


async def no_refresh():
    pass


async def page(http, path):
    async with http.client.get(path) as answer:
        return answer.status, await answer.json()
