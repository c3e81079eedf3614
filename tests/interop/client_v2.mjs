// A client of the TypeScript SDK 2.x, of either era: see meeting.mjs.

import { NOTE, answer, asked, meet, require, signal, url } from "./meeting.mjs";

const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const transports = {
  stdio: () => new StdioClientTransport({ command: asked.program, args: ["stdio"] }),
  http: () => new StreamableHTTPClientTransport(url),
};

await meet(async () => {
  const isModern = asked.era !== "legacy";
  const options = { capabilities: { elicitation: {} }, versionNegotiation: { mode: isModern ? "auto" : "legacy" } };
  const client = new Client({ name: "interop", version: "1.0" }, options);
  const [touched, grown] = [signal(), signal()];
  client.setRequestHandler("elicitation/create", async () => answer);
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => params.uri === NOTE && touched.raise());
  client.setNotificationHandler("notifications/tools/list_changed", grown.raise);
  await client.connect(transports[asked.transport]());
  return {
    version: client.getNegotiatedProtocolVersion(),
    touched,
    grown,
    names: async () => (await client.listTools()).tools.map((tool) => tool.name),
    async call(name, given, options) {
      const result = await client.callTool({ name, arguments: given }, options);
      return { failed: Boolean(result.isError), text: result.content[0].text };
    },
    // A modern client hears of nothing that it did not ask for, lists included.
    watch: () =>
      isModern ? client.listen({ resourceSubscriptions: [NOTE], toolsListChanged: true }) : client.subscribeResource({ uri: NOTE }),
    close: () => client.close(),
  };
});
