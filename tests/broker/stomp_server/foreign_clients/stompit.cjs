// stompit over TCP: node stompit.cjs PORT

const { promisify } = require('node:util')
const stompit = require('stompit')
const { run } = require('./checks.cjs')

const port = Number(process.argv[2])

// stompit keeps the version to itself.
const { setVersion } = stompit.Client.prototype
stompit.Client.prototype.setVersion = function (version) { this.agreedVersion = version; return setVersion.call(this, version) }

async function connect ({ heartBeatMs = 0 }) {
  const client = await promisify(stompit.connect)({
    host: '127.0.0.1',
    port,
    connectHeaders: { host: '/', login: 'guest', passcode: 'secret', 'heart-beat': `${heartBeatMs},${heartBeatMs}` }
  })
  let alive = true
  client.on('error', error => { alive = false; console.error(error); process.exit(1) })
  return {
    version: client.agreedVersion,
    alive: () => alive,
    send: (headers, body) => new Promise(resolve => {
      const frame = client.send({ 'content-length': body.length, ...headers }, { onReceipt: resolve })
      frame.end(body)
    }),
    subscribe: (headers, onMessage) => client.subscribe(headers, (error, message) => {
      if (error) return
      const parts = []
      message.on('data', part => parts.push(part))
      message.on('end', () => onMessage({ headers: message.headers, body: Buffer.concat(parts), raw: message }))
    }),
    ack: ({ raw }, headers) => new Promise(resolve => client.ack(raw, headers, { onReceipt: resolve })),
    nack: ({ raw }) => new Promise(resolve => client.nack(raw, {}, { onReceipt: resolve })),
    begin: () => {
      const transaction = client.begin()
      return {
        name: transaction.id,
        commit: () => new Promise(resolve => transaction.commit({ onReceipt: resolve })),
        abort: () => new Promise(resolve => transaction.abort({ onReceipt: resolve }))
      }
    },
    disconnect: promisify(client.disconnect.bind(client))
  }
}

run('stompit', connect)
