// What every client in node must be able to do with the broker; `connect` hides how each of them says it.
//
// connect({heartBeatMs}) -> {version, escapes (false: the client has none), send(headers, body) -> receipt, subscribe(headers, onMessage) -> {unsubscribe()}, ack(message, headers),
//                            nack(message), begin() -> {name, commit(), abort()}, alive(), disconnect()}
// A message is {headers, body: Buffer, raw}. Prints one line for each check that passed; the first that fails ends the process.

const assert = require('node:assert/strict')

const LARGE = 20 * 1024 * 1024

class Inbox {
  constructor () { this.messages = []; this.waiting = [] }
  put (message) { const next = this.waiting.shift(); if (next) next(message); else this.messages.push(message) }
  take () {
    return this.messages.length
      ? Promise.resolve(this.messages.shift())
      : new Promise(resolve => this.waiting.push(resolve))
  }
}

async function consume (client, queue, ack) {
  const inbox = new Inbox()
  inbox.subscription = await client.subscribe({ destination: queue, ack }, message => inbox.put(message))
  return inbox
}

async function left (connect, queue) {
  const client = await connect({})
  await client.send({ destination: queue }, Buffer.from('end'))
  const inbox = await consume(client, queue, 'auto')
  const found = []
  while (found.at(-1) !== 'end') found.push((await inbox.take()).body.toString())
  await client.disconnect()
  return found.slice(0, -1)
}

const checks = {
  async receipts (connect, queue) {
    const client = await connect({})
    for (let n = 0; n < 3; n++) await client.send({ destination: queue }, Buffer.from(`${n}`))
    await client.disconnect()
    assert.deepEqual(await left(connect, queue), ['0', '1', '2'])
  },

  async 'ack auto' (connect, queue) {
    const client = await connect({})
    await client.send({ destination: queue }, Buffer.from('x'))
    const inbox = await consume(client, queue, 'auto')
    assert.equal((await inbox.take()).body.toString(), 'x')
    await client.disconnect()
    assert.deepEqual(await left(connect, queue), [])
  },

  async 'ack client' (connect, queue) {
    const client = await connect({})
    for (let n = 0; n < 4; n++) await client.send({ destination: queue }, Buffer.from(`${n}`))
    const inbox = await consume(client, queue, 'client')
    const got = []
    for (let n = 0; n < 4; n++) got.push(await inbox.take())
    await client.ack(got[2])
    await client.disconnect()
    assert.deepEqual(await left(connect, queue), ['3'])
  },

  async 'ack client-individual and nack' (connect, queue) {
    const client = await connect({})
    for (let n = 0; n < 3; n++) await client.send({ destination: queue }, Buffer.from(`${n}`))
    const inbox = await consume(client, queue, 'client-individual')
    const got = []
    for (let n = 0; n < 3; n++) got.push(await inbox.take())
    await client.ack(got[2])
    await client.nack(got[1])
    const again = await inbox.take()
    assert.equal(again.body.toString(), '1')
    assert.equal(again.headers.redelivered, 'true')
    await client.ack(again)
    await client.disconnect()
    assert.deepEqual(await left(connect, queue), ['0'])
  },

  async transactions (connect, queue) {
    const client = await connect({})
    const undone = await client.begin()
    await client.send({ destination: queue, transaction: undone.name }, Buffer.from('undone'))
    await undone.abort()
    const done = await client.begin()
    await client.send({ destination: queue, transaction: done.name }, Buffer.from('done'))
    await done.commit()
    const inbox = await consume(client, queue, 'client-individual')
    const message = await inbox.take()
    assert.equal(message.body.toString(), 'done')
    const acking = await client.begin()
    await client.ack(message, { transaction: acking.name })
    await acking.commit()
    await client.disconnect()
    assert.deepEqual(await left(connect, queue), [])
  },

  async 'heart-beats' (connect, queue) {
    const client = await connect({ heartBeatMs: 300 })
    await new Promise(resolve => setTimeout(resolve, 1800)) // longer than the broker's and the client's patience
    assert.ok(client.alive())
    await client.send({ destination: queue }, Buffer.from('x'))
    await client.disconnect()
    assert.deepEqual(await left(connect, queue), ['x'])
  },

  async 'bodies with NUL' (connect, queue) {
    const client = await connect({})
    const body = Buffer.from([0, 1, 2, 0, 255, 254, 10, 0])
    await client.send({ destination: queue }, body)
    const inbox = await consume(client, queue, 'auto')
    assert.ok((await inbox.take()).body.equals(body))
    await client.disconnect()
  },

  async escapes (connect, queue) {
    const client = await connect({})
    if (client.escapes === false) return 'the client has no escapes in this version'
    const values = { plain: 'x', colon: 'c:d', slash: 'a\\ b', lines: 'one\ntwo', name: 'grüße ☃' }
    await client.send({ destination: queue, ...values }, Buffer.from('x'))
    const inbox = await consume(client, queue, 'auto')
    const { headers } = await inbox.take()
    for (const [name, value] of Object.entries(values)) assert.equal(headers[name], value)
    await client.disconnect()
  },

  async '20 MB' (connect, queue) {
    const client = await connect({})
    const body = Buffer.alloc(LARGE, Buffer.from(Array.from({ length: 251 }, (_, n) => n)))
    await client.send({ destination: queue }, body)
    const inbox = await consume(client, queue, 'client-individual')
    const message = await inbox.take()
    assert.ok(message.body.equals(body))
    await client.ack(message)
    await client.disconnect()
  }
}

exports.run = async function (name, connect) {
  const client = await connect({})
  console.log(`version ${client.version}`)
  await client.disconnect()
  for (const [check, work] of Object.entries(checks)) {
    const lack = await work(connect, `/queue/${name}-${check.replaceAll(' ', '-')}`)
    console.log(lack ? `cannot ${check}: ${lack}` : `passed ${check}`)
  }
  process.exit(0)
}
