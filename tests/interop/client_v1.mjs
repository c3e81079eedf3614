// A client of the TypeScript SDK 1.x: see meeting.mjs.

import { NOTE, answer, asked, meet, require, signal, url } from "./meeting.mjs";

const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { SSEClientTransport } = require("@modelcontextprotocol/sdk/client/sse.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const transports = {
  stdio: () => new StdioClientTransport({ command: asked.program, args: ["stdio"] }),
  http: () => new StreamableHTTPClientTransport(url),
  sse: () => new SSEClientTransport(url),
};

await meet(async () => {
  const client = new Client({ name: "interop", version: "1.0" }, { capabilities: { elicitation: {} } });
  const [touched, grown] = [signal(), signal()];
  client.setRequestHandler(types.ElicitRequestSchema, async () => answer);
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => params.uri === NOTE && touched.raise());
  client.setNotificationHandler(types.ToolListChangedNotificationSchema, grown.raise);
  const transport = transports[asked.transport]();
  let version;
  // Of the three transports, one lets itself be asked for it.
  transport.setProtocolVersion = ((before) => (agreed) => {
    version = agreed;
    before?.call(transport, agreed);
  })(transport.setProtocolVersion);
  await client.connect(transport);
  return {
    version,
    touched,
    grown,
    names: async () => (await client.listTools()).tools.map((tool) => tool.name),
    async call(name, given, options) {
      const result = await client.callTool({ name, arguments: given }, undefined, options);
      return { failed: Boolean(result.isError), text: result.content[0].text };
    },
    watch: () => client.subscribeResource({ uri: NOTE }),
    close: () => client.close(),
  };
});
