// @stomp/stompjs over WebSocket, as in a browser, or over TCP: node stompjs.cjs PORT web|tcp VERSION|-

const net = require('node:net')
const { Client, Versions } = require('@stomp/stompjs')
const WebSocket = require('ws')
const { run } = require('./checks.cjs')

const [port, way, version] = process.argv.slice(2)
const versions = version === '-' ? Versions.default : new Versions([version])

// What stompjs asks of a socket, on plain TCP.
class TcpSocket {
  constructor () {
    this.url = `tcp://127.0.0.1:${port}/`
    this.readyState = 0
    this.socket = net.connect(Number(port), '127.0.0.1', () => { this.readyState = 1; this.onopen() })
    this.socket.on('data', data => this.onmessage({ data: new Uint8Array(data).buffer }))
    this.socket.on('close', () => { this.readyState = 3; this.onclose({ code: 1000 }) })
    this.socket.on('error', error => { this.onerror?.(error) })
  }

  send (data) { this.socket.write(typeof data === 'string' ? data : Buffer.from(data)) }
  close () { this.socket.end() }
}

let receipts = 0

function connect ({ heartBeatMs = 0 }) {
  return new Promise((resolve, reject) => {
    const client = new Client({
      webSocketFactory: () => way === 'tcp'
        ? new TcpSocket()
        : new WebSocket(`ws://127.0.0.1:${port}/stomp`, versions.protocolVersions()),
      stompVersions: versions,
      connectHeaders: { login: 'guest', passcode: 'secret' },
      heartbeatIncoming: heartBeatMs,
      heartbeatOutgoing: heartBeatMs,
      reconnectDelay: 0,
      onConnect: () => resolve(wrapped(client)),
      onStompError: frame => { console.error(frame.headers.message); process.exit(1) },
      onWebSocketError: reject
    })
    client.activate()
  })
}

function wrapped (client) {
  const withReceipt = say => new Promise(resolve => {
    const receipt = `receipt-${++receipts}`
    client.watchForReceipt(receipt, resolve)
    say({ receipt })
  })
  return {
    version: client.connectedVersion,
    escapes: client.connectedVersion === '1.2',
    alive: () => client.connected,
    send: ({ destination, ...headers }, body) =>
      withReceipt(more => client.publish({ destination, headers: { ...headers, ...more }, binaryBody: new Uint8Array(body) })),
    subscribe: ({ destination, ...headers }, onMessage) =>
      client.subscribe(destination, raw => onMessage({ headers: raw.headers, body: Buffer.from(raw.binaryBody), raw }), headers),
    ack: ({ raw }, headers) => withReceipt(more => raw.ack({ ...headers, ...more })),
    nack: ({ raw }) => withReceipt(more => raw.nack(more)),
    begin: () => {
      const transaction = client.begin()
      return { name: transaction.id, commit: () => transaction.commit(), abort: () => transaction.abort() }
    },
    disconnect: () => client.deactivate()
  }
}

run(`stompjs-${way}-${version}`, connect)
