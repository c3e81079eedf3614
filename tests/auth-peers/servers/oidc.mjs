// An authorization server: oidc-provider, with dynamic registration, device codes, client credentials and refresh tokens that are used once. Prints a
// line of JSON for each grant.
//
//   node oidc.mjs NODE_MODULES PORT SECONDS [RESOURCE...]
//
// Access tokens live for SECONDS. ANSWER_DELAY_MS delays each answer of the token endpoint by a random time up to that many milliseconds, after the grant.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [modules, port, seconds, ...resources] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${modules}/package.json`));
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const issuer = `http://127.0.0.1:${port}`;
const say = (event, more) => console.log(JSON.stringify({ event, ...more }));
const accessTokenTTL = Number(seconds);

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'proxy',
      client_secret: 'proxy-secret',
      redirect_uris: resources.map((url) => `${new URL(url).origin}/auth/callback`),
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
    },
    {
      client_id: 'program',
      client_secret: 'program-secret',
      redirect_uris: [],
      response_types: [],
      grant_types: ['client_credentials'],
    },
  ],
  scopes: ['openid', 'offline_access', 'read'],
  ttl: { AccessToken: accessTokenTTL, ClientCredentials: accessTokenTTL, DeviceCode: 600, Grant: 86400, Session: 86400, IdToken: 3600, Interaction: 600 },
  clientBasedCORS: () => false,
  rotateRefreshToken: () => true,
  // Every client gets a refresh token, as at most authorization servers for MCP.
  issueRefreshToken: async (ctx, client) => client.grantTypeAllowed('refresh_token'),
  features: {
    registration: { enabled: true },
    revocation: { enabled: true },
    introspection: { enabled: true },
    deviceFlow: { enabled: true },
    clientCredentials: { enabled: true },
    devInteractions: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (ctx, resource) => ({
        scope: 'read',
        audience: resource,
        accessTokenTTL,
        accessTokenFormat: 'jwt',
        jwt: { sign: { alg: 'RS256' } },
      }),
    },
  },
});

const delay = Number(process.env.ANSWER_DELAY_MS ?? 0);
provider.use(async (ctx, next) => {
  await next();
  if (ctx.path === '/token' && delay) {
    await new Promise((resolve) => setTimeout(resolve, Math.random() * delay));
  }
});
provider.on('grant.success', (ctx) => {
  const { grant_type: grant } = ctx.oidc.params;
  say('grant', { grant, access: ctx.body.access_token, refresh: ctx.body.refresh_token, identity: ctx.body.id_token, code: ctx.oidc.params.code, verifier: ctx.oidc.params.code_verifier, device: ctx.oidc.params.device_code });
});
provider.on('grant.error', (ctx, error) => say('grant-error', { grant: ctx.oidc?.params?.grant_type, error: error.message, detail: error.error_detail }));
provider.on('grant.revoked', () => say('grant-revoked'));
provider.on('registration_create.success', (ctx, client) => say('registered', { id: client.clientId, secret: client.clientSecret }));
provider.on('registration_create.error', (ctx, error) => say('registration-error', { error: error.message, detail: error.error_description }));
provider.on('authorization.error', (ctx, error) => say('authorization-error', { error: error.message, detail: error.error_description }));
provider.on('server_error', (ctx, error) => say('server-error', { error: String(error.stack) }));
provider.listen(Number(port), '127.0.0.1');
